"""Any bytes as statements: `python -m tests.fuzz.lexer --minutes 5`."""

from tests.fuzz.harness import main

if __name__ == "__main__":
    main("lexer")
