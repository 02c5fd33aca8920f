"""Every bound in one place, unit last, each with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- names and small values that callers choose -------------------------------------------------------------------
NAME_CHARS_MAX = 63  # one DNS label, so that a name can be part of a host name
METADATA_ENTRIES_MAX = 64  # enough for labels, too few for a database
METADATA_KEY_CHARS_MAX = 128
METADATA_VALUE_CHARS_MAX = 4096
ENV_ENTRIES_MAX = 512
ENV_BYTES_MAX = 128 * KIB  # what Linux allows for one argument string; far more than any program reads
PATH_BYTES_MAX = 4096  # PATH_MAX of Linux

# --- resources of one sandbox ---------------------------------------------------------------------------------------
CPU_MIN = 0.05  # below this a sandbox cannot answer its own health check in time
CPU_MAX = 256.0
MEMORY_BYTES_MIN = 64 * MIB  # sentry, gofer and guest take about 40 MiB
MEMORY_BYTES_MAX = 1024 * GIB
DISK_BYTES_MIN = 16 * MIB
DISK_BYTES_MAX = 16 * 1024 * GIB
PIDS_MIN = 32  # the sentry's own threads count too
PIDS_MAX = 65536
TIMEOUT_S_MIN = 1
TIMEOUT_S_MAX = 30 * 24 * 3600  # a month; a sandbox meant for longer extends its deadline

# --- HTTP edge ------------------------------------------------------------------------------------------------------
JSON_BODY_BYTES_MAX = 4 * MIB  # larger things are files, and files are streamed
PAGE_ITEMS_MAX = 200
PAGE_ITEMS_DEFAULT = 50
HTTP_KEEP_ALIVE_S = 75  # an idle connection of a client that may come back
HTTP_BACKLOG = 2048  # callers that may wait to be accepted; a burst of creates comes at once
QUERY_FIELDS_MAX = 128  # filters of a list: one for each metadata entry, and some

# --- guest link -----------------------------------------------------------------------------------------------------
FRAME_BYTES_MAX = MIB  # one frame is held in memory on both sides
GUEST_CONNECT_S_MAX = 5.0
GUEST_REPLY_S_MAX = 30.0  # a reply to a small question; streams have their own clocks
GUEST_IDLE_S_MAX = 3600.0  # a stream on which nothing came for this long is taken for dead
GUEST_ITEMS_MAX = 200_000  # what a guest may list before it is taken for endless
GUEST_COLLECT_BYTES_MAX = 64 * MIB  # what one list may weigh in the node's memory

# --- host -----------------------------------------------------------------------------------------------------------
HELPER_S_MAX = 60.0  # a helper program (runsc, ip, nft) that takes longer is stuck
BOOT_S_MAX = 30.0  # from `runsc start` to the guest's first answer
MEMORY_RESERVE_BYTES = 512 * MIB  # what the host keeps for itself when a sandbox is admitted
SANDBOXES_PER_NODE_MAX = 1000

# --- disks ----------------------------------------------------------------------------------------------------------
POOL_BYTES_MAX = 1024 * GIB  # a sparse image; larger pools are a filesystem of their own, which is used as it is
POOL_BYTES_MIN = 2 * GIB  # the two built-in templates and a few sandboxes
POOL_SHARE_OF_FREE = 0.8  # of the space that is free at set-up; the host keeps the rest
POOL_RESERVE_BYTES = 256 * MIB  # below this no new disk is made: btrfs needs room to delete, and so do the others
FILE_NAME_BYTES_MAX = 255  # NAME_MAX of Linux
SUBVOLUME_DEPTH_MAX = 8  # nested subvolumes are foreign to us; deeper nests are left for a person
SEARCH_ITEMS = 64  # items that one btrfs tree search may return; they share 4 KiB anyway
LOOP_FREE_S_MAX = 2.0  # for a loop device to go after its unmount; milliseconds unless someone holds a copy
CLEANED_POLL_S = 0.02  # between two looks at whether the kernel has freed a deleted subvolume

# --- set-up ---------------------------------------------------------------------------------------------------------
HELPER_STDERR_BYTES_MAX = MIB  # all that a helper program may complain; a longer story goes to a log file
HELPER_KILL_S = 1.0  # after SIGKILL: longer only where the kernel itself is stuck
HELPER_TAIL_BYTES = 8 * KIB  # the end of the complaints that goes into an error
HELPER_STDOUT_BYTES_MAX = 16 * MIB  # an answer of a helper program that is read into memory
RUNSC_BYTES_MAX = 256 * MIB  # three times what a release is
BUILD_S_MAX = 1800.0  # a build step of set-up (packages, compiler) on a slow machine and line

# --- inside the guest -----------------------------------------------------------------------------------------------
CONNECTIONS_MAX = 256  # operations at once; each has one thread
CONNECTION_THREADS_IDLE_MAX = 8  # threads kept waiting, so that a burst needs no new ones
FIRST_FRAME_S_MAX = 5.0  # a connection that does not say what it wants is closed
TRANSFER_STALL_S_MAX = 120.0  # a peer that neither reads nor writes for this long is gone
SOCKET_BUFFER_BYTES = 2 * MIB  # enough on its way to keep both ends busy
THREAD_STACK_BYTES = 512 * KIB  # Python frames live on the heap; the C stack needs little
WORKER_REPLY_S_MAX = 10.0  # a spawner that takes longer is stopped or dead, and is replaced
WORKER_THREADS_MAX = 64  # file operations at once, per user
PROCESSES_LIVE_MAX = 1024  # started and not ended
PROCESSES_KEPT_MAX = 256  # ended, with output that can still be read
RING_BYTES_MAX = 2 * MIB  # of one stream of one process
RING_BYTES_MIN = 16 * KIB  # what a stream keeps even when there are very many
RING_TOTAL_BYTES_MAX = 64 * MIB  # of all streams; shared fairly
PIPE_BYTES = 512 * KIB  # what a program may write before we must read
PUMP_READ_BYTES = 256 * KIB  # one read of a pipe; large enough for full speed, small enough to be fair
FOLLOWER_STALL_S_MAX = 5.0  # how long a reader that does not read may hold a writer up; then it loses bytes instead
PTY_DRAIN_S = 0.05  # a terminal hands its last output over a moment after its program ended
TERM_GRACE_S = 2.0  # between TERM and KILL when a timeout ends a tree
TREE_ROUNDS_MAX = 8  # looks at /proc while a tree that forks is being ended
ARGV_ENTRIES_MAX = 16384
ARGV_BYTES_MAX = 768 * KIB  # must fit one frame together with the environment
TAG_CHARS_MAX = 256
LIST_ENTRIES_MAX = 200_000  # of one listing or find; then it says that it was cut
LIST_BATCH_ENTRIES = 400  # entries per frame: at most about 300 bytes each, or one of 4096
TREE_DEPTH_MAX = 256  # folders inside folders
SEARCH_FILE_BYTES_MAX = 64 * MIB  # larger files are skipped and counted
SEARCH_LINE_BYTES_MAX = 4 * KIB  # of a matching line, as shown
SEARCH_MATCHES_MAX = 10_000
ONE_OFF_CPU_S_MAX = 300  # a regular expression or an archive that burns more is ended
ARCHIVE_ENTRIES_MAX = 500_000
ARCHIVE_BYTES_MAX = 16 * GIB  # unpacked; the sandbox's disk quota is usually far below
XATTR_BYTES_MAX = 64 * KIB  # XATTR_SIZE_MAX of Linux
WATCH_FOLDERS_MAX = 8192  # inotify watches of one caller
PORTS_POLL_S = 0.2  # how often /proc/net is looked at while someone watches
SYSTEM_PROCESSES_MAX = 4096  # entries of /proc that are reported
MEMORY_GUARD_BYTES_MIN = 40 * MIB  # free memory below which the hungriest process is ended; the guest needs some to act
MEMORY_GUARD_FRACTION = 0.05  # the same for large sandboxes, of their memory
MEMORY_GUARD_FILL_BYTES_PER_S = 2 * GIB  # the fastest that a process fills memory; sets how often to look
MEMORY_GUARD_POLL_S_MIN = 0.02
MEMORY_GUARD_POLL_S_MAX = 0.5

# --- the runtime's own needs ----------------------------------------------------------------------------------------
RUNTIME_MEMORY_BYTES = 96 * MIB  # sentry, gofer and guest (seen: 40 to 60 MiB); on top of what the sandbox may use
RUNTIME_TASKS = 256  # threads of sentry and gofer, on top of what the sandbox may start
CGROUP_REMOVE_S_MAX = 10.0  # processes that were killed and still hold their group are stuck in the kernel

# --- control --------------------------------------------------------------------------------------------------------
CLOCK_LOOK_S = 1.0  # between two looks at the machine's clock while waiting for a moment: it may have been set
DATABASE_BUSY_S = 5.0  # how long a statement waits for another writer; a transaction of ours takes milliseconds
DATABASE_CONNECTIONS_MAX = 5  # one writer, and readers that a slow page does not block
KEY_CACHE_ENTRIES_MAX = 1024  # keys in use at one moment; more only means more look-ups
KEY_CACHE_S = 5.0  # how long a revoked key may still be honoured by another server process
END_DETAIL_CHARS_MAX = 2000  # what is kept of why a sandbox ended
KILL_WAIT_S_MAX = 30.0  # how long a caller waits for a sandbox to be gone; it is ended all the same
TEARDOWN_RETRY_S_MIN = 0.1  # first pause after a tear-down that failed; doubles
TEARDOWN_RETRY_S_MAX = 10.0
LOOP_RETRY_S = 0.5  # pause of a background loop after an error, so that it does not spin

# --- SDK ------------------------------------------------------------------------------------------------------------
CLIENT_CONNECT_S_MAX = 5.0  # a server that is there accepts at once
CLIENT_ANSWER_S_MAX = 60.0  # any answer that is not a stream; the slowest is a create on a busy host
CLIENT_GRACE_S = 30.0  # beyond a command's own time limit: ending its processes, and the way back
CLIENT_IDLE_S_MAX = 60.0  # less than HTTP_KEEP_ALIVE_S: the client drops an idle connection before the server does
CLIENT_CONNECTIONS_MAX = 256  # one per stream that is being read at the same time
CLIENT_ATTEMPTS_MAX = 4  # of a request that may be repeated
CLIENT_BACKOFF_S = 0.05  # before the second attempt; doubled each time, with jitter
COMMAND_OUTPUT_BYTES_MAX = 64 * MIB  # of each stream kept in a CommandResult; the rest is read and dropped, and said so
FILE_READ_BYTES_MAX = 256 * MIB  # read into memory at once: a sandbox may offer a file without end
UPLOAD_CHUNK_BYTES = 256 * KIB  # large enough that the cost per chunk does not show
DISCOVERY_BYTES_MAX = 64 * KIB  # server.json and the key file
ADMISSION_FREE_BYTES = 256 * MIB  # what must be free for a new sandbox to get through its start, whatever its limit
PING_EVERY_S = 5.0  # how often a guest is asked whether it is there
PING_S_MAX = 10.0  # a sandbox that burns all its CPU still answers within this
PINGS_MISSED_MAX = 3  # then its inside is taken for dead
NETWORKS_SPARE = 4  # namespace pairs made in advance: a burst of creates does not wait for `ip`
