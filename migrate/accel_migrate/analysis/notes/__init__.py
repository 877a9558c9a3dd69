"""What no edit makes right and a user must be told: random numbers, figures of a shard, parts without a gradient."""
