"""Actions on the files below one directory."""
