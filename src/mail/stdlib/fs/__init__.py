"""Actions on the files below one directory."""

from mail.stdlib.fs.actions import (
    create_directory,
    delete_file,
    find_files,
    list_directory,
    read_directory,
    read_file,
    search_files,
    write_file,
)

__all__ = [
    "create_directory",
    "delete_file",
    "find_files",
    "list_directory",
    "read_directory",
    "read_file",
    "search_files",
    "write_file",
]
