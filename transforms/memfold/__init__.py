"""memfold: the night shift for AI-agent memory. Light to import: neither Prefect, numba nor DuckDB."""
