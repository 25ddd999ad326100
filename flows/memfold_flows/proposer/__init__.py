"""A model may propose, memfold decides: what it is asked, how it is reached, what it costs. Off unless it is set."""
