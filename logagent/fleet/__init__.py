"""The fleet job. pyspark is imported only below this package."""
