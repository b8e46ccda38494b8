"""Plumbing: checks, threads, model folders, optional dependencies. Nothing here is for users."""
