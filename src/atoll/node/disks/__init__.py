"""Disks of sandboxes: subvolumes of one btrfs pool."""
