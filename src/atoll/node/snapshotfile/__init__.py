"""A snapshot as one file, to be carried to another server; and back, as if an enemy had written it.

    container   preamble · blocks, each a zstd frame of at most 1 MiB · digest and signature of all before it
    items       what is in the blocks: head, the disk as a tree of names, the memory's files, end
    pack        a disk and a memory to items
    unpack      items to a disk and a memory, inside one folder and nowhere else
    signing     who wrote a file: a server signs what it exports

The disk travels as a tree and not as a btrfs stream, because receiving a stream is a parser in the kernel that runs for
root. The tree has no paths: an item names one thing in the folder that is open, so nothing can lead anywhere else.
What an import puts on a disk, a guest could have put there itself.

Memory is another matter. It is the state of the boundary itself: whoever writes it is past the first wall as soon as it
is restored. So memory is taken from files that this server or a server that its operator trusts has signed.
"""
