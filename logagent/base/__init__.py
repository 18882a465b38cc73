"""What every room uses: names, keys and kinds of directories, claims, errors, times and sizes."""
