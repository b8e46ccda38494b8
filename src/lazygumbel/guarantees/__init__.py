"""What can be promised of a method: closed forms of its error, and ceilings measured against brute force."""
