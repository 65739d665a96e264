"""What is said, built once as typed blocks; the writers beside this room put it into a format."""
