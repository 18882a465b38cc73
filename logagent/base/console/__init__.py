"""What every command shares: options, tables, streams, completion."""
