"""The side of memfold that touches the world: stores, files, clocks, the environment and Prefect."""
