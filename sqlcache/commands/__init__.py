"""What each command of the command line does; `sqlcache serve` is in `process`."""
