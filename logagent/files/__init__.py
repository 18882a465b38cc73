"""The one way to open what others wrote: nothing here blocks, follows a planted symlink, or reads without a limit."""
