"""What sqlcache itself asks of MySQL, by an account of its own."""
