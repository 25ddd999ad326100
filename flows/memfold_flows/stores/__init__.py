"""Stores: open_store(url) gives the adapter for one system; each adapter is one file here."""
