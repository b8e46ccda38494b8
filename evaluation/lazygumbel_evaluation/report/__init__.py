"""What was measured, as plain data, and how it is shown."""
