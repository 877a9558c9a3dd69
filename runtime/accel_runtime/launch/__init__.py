"""Starting the processes of a run: one by replacing the launcher, many on torch.distributed.run."""
