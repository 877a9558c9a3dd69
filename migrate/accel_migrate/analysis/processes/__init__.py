"""What is a process's own: names and figures that differ between processes, and what runs once all is prepared."""
