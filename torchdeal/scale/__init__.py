"""Much at once: large pictures, stacks, and requests of others."""
