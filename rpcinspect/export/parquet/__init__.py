"""A session as one partition of a lake of Parquet files."""
