"""`sqlcache serve` as a process: its start and end, its workers, its address, its log."""
