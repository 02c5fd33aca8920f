"""Every bound in one place, unit last, each with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- names and small values that callers choose -------------------------------------------------------------------
NAME_CHARS_MAX = 63  # one DNS label, so that a name can be part of a host name
EXTERNAL_ID_CHARS_MAX = 128  # ids of other systems: a UUID, a path of one
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
FILE_URL_S_DEFAULT = 300.0  # how long a signed address lives; whoever has it needs no key
FILE_URL_S_MAX = 24 * 3600.0  # a day; it cannot be taken back
FILE_URL_BYTES_MAX = 32 * KIB  # a path of 4096 bytes, each of which may be six letters of JSON, in base64
SOCKET_MESSAGE_BYTES_MAX = MIB  # one message of a WebSocket; a paste that is larger comes in several
SOCKET_PING_S = 20.0  # a WebSocket whose peer does not answer a ping within this is closed
TICKET_S = 60  # from asking for a ticket to opening a WebSocket with it
TICKETS_MAX = 10_000  # given out and not used
TERMINAL_TAIL_BYTES = 256 * KIB  # what a screen is restored from: many screens of a full-screen program
QUERY_FIELDS_MAX = 128  # filters of a list: one for each metadata entry, and some
HTTP_HEAD_BYTES_MAX = 64 * KIB  # of a request line and its headers; browsers send a tenth of it
HOST_CHARS_MAX = 253  # a name in DNS
INGRESS_HEAD_BYTES_MAX = 64 * KIB  # of an answer of a server inside, before its body
INGRESS_INFORMATION_MAX = 16  # answers such as 100 and 103 before the real one
INGRESS_CONNECTIONS_PER_SANDBOX_MAX = 256  # through published ports at a time: a page with all its parts, many times
INGRESS_CONNECTIONS_MAX = 4096  # of all sandboxes: two descriptors each
INGRESS_IDLE_S_MAX = 3600.0  # a connection through a port on which nothing came for this long is taken for dead
INGRESS_CHUNK_BYTES = 256 * KIB  # one read of a connection through a port
PORT_LINK_S_MAX = 30 * 24 * 3600  # a signed address outlives no sandbox by much
PORT_LINK_S_DEFAULT = 24 * 3600
TLS_NAMES_MAX = 256  # certificates for names under the domain that are kept at hand
PORT_CACHE_ENTRIES_MAX = 4096  # rules of ports in use at one moment; more only means more look-ups
PORT_CACHE_S = 5.0  # how long a change may go unnoticed by another server process

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
PUMP_SMALL_READS_MAX = 4  # small reads in a row after which a stream may fill its pipe before it is read again
PUMP_SMALL_BYTES = 64 * KIB
PUMP_REST_S = 0.003  # nobody sees this on a screen, and a pipe of 512 KiB is not full before
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
WRITE_BESIDE_BYTES = 4 * MIB  # an upload over this is worth a thread that writes while the rest arrives
WRITE_BUFFER_BYTES = 512 * KIB  # one hand-over between the two threads
WRITE_BUFFERS = 4  # of one upload; more did not make it faster
XATTR_BYTES_MAX = 64 * KIB  # XATTR_SIZE_MAX of Linux
WATCH_FOLDERS_MAX = 8192  # inotify watches of one caller
WATCH_WAITING_BYTES_MAX = MIB  # events for a client that does not read; then it is told that some are lost
WATCH_MOVES_MAX = 1024  # first halves of moves that are remembered; the second half follows at once or never
WATCHERS_PER_SANDBOX_MAX = 32  # polled ones; each is a connection to the guest
WATCHER_CHANGES_BYTES_MAX = MIB  # of what waits for a caller who polls; then the oldest go
WATCHER_CHANGE_BYTES = 256  # what a change takes beside its path, about
WATCHER_IDLE_S_MAX = 600.0  # a caller who has not polled for so long is gone
RELAYS_MAX = 64  # connections to loopback at once: a quarter of CONNECTIONS_MAX, so that the guest stays reachable
PORTS_POLL_S = 0.2  # how often /proc/net is looked at while someone watches
SYSTEM_PROCESSES_MAX = 4096  # entries of /proc that are reported
MEMORY_GUARD_BYTES_MIN = 40 * MIB  # free memory below which the hungriest process is ended; the guest needs some to act
MEMORY_GUARD_FRACTION = 0.05  # the same for large sandboxes, of their memory
MEMORY_GUARD_FILL_BYTES_PER_S = 4 * GIB  # the fastest that a process fills memory; sets how often to look
MEMORY_GUARD_POLL_S_MIN = 0.01
MEMORY_GUARD_POLL_S_MAX = 0.5
MEMORY_GUARD_RETURN_S = 1.0  # how long the memory of an ended process may take to be free again
MEMORY_GUARD_VICTIM_BYTES_MIN = 8 * MIB  # ending anything smaller frees nothing
MEMORY_GUARD_GROWTH_BYTES_MIN = 1 * MIB  # between two looks: who grows by this much is still filling memory
SHELL_COMMAND_CHARS_MAX = 128 * KIB  # one command of a session; longer ones are scripts, and scripts are files
SHELL_WORDS_BYTES_MAX = 16 * KIB  # what a session may say about the end of a command: a word, a code, a folder
CONTEXTS_MAX = 16  # interpreters at once; each is a process and a thread of the guest
CODE_BYTES_MAX = 3 * MIB  # of one piece of code; fits a request's body with its escapes
CODE_INLINE_BYTES_MAX = 128 * KIB  # code that goes into the request's own frame, with room for escapes
EXECUTIONS_QUEUED_MAX = 64  # pieces of code that wait for one context
EXECUTIONS_KEPT_MAX = 16  # ended ones of a context that can still be read again
EXECUTIONS_KEPT_BYTES_MAX = 32 * MIB  # what those of a context may weigh together
EXECUTION_STREAM_BYTES_MAX = 4 * MIB  # of stdout, and of stderr; more is a file
EXECUTION_RESULT_BYTES_MAX = 10 * MIB  # one result in all its forms
EXECUTION_BYTES_MAX = 24 * MIB  # all that one execution may say
EXECUTION_EVENTS_MAX = 10_000  # outputs and results of one execution
EXECUTION_GATHER_BYTES = 64 * KIB  # output that nobody has read yet is joined up to this
EXECUTION_KEEPALIVE_S = 5.0  # a silent execution says that it is there, so that no proxy gives it up
EXECUTION_SETTLE_S_MIN = 0.02  # the same before each thing that the interpreter itself says
EXECUTION_SETTLE_S_MAX = 0.5  # for what children of an execution wrote to come through their pipes
EXECUTION_SILENCE_S_MAX = 60.0  # without even a keepalive: then the server is gone
EXECUTION_LINE_BYTES_MAX = 16 * MIB  # one event at the SDK: a result, with the escapes of JSON
EVALUATION_FILES_MAX = 64  # files that an evaluation gives back
EVALUATION_FILES_BYTES_MAX = 8 * MIB  # what those may weigh together; more is for a sandbox that stays
CONTEXT_START_S_MAX = 60.0  # an interpreter that takes longer is stuck; Java inside takes some seconds
CONTEXT_INTERRUPT_GRACE_S = 5.0  # between an interrupt and the end of an interpreter that does not react to it
CONTEXT_REWARM_S = 1.0  # after a copy got its owner: then interpreters that had to go are started again
CONTEXT_RESEED_S_MAX = 2.0  # for an idle interpreter to draw new random numbers; then it is restarted

# --- the runtime's own needs ----------------------------------------------------------------------------------------
RUNTIME_MEMORY_BYTES = 96 * MIB  # sentry, gofer and guest (seen: 40 to 60 MiB); on top of what the sandbox may use
MEMORY_BURST_BYTES = 192 * MIB  # over the limit, for the moment that the guard inside needs to end a hog
RUNTIME_TASKS = 256  # threads of sentry and gofer, on top of what the sandbox may start
SAMPLE_EVERY_S = 5.0  # between two looks at what a sandbox uses
SAMPLES_MAX = 720  # an hour of them
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
GIT_S_DEFAULT = 60.0  # git on files that are there; what talks to a remote has its own time
GIT_OUTPUT_BYTES_MAX = 8 * MIB  # of one run of git, in the server's memory
GIT_SAID_CHARS_MAX = 4000  # git's own words in an answer, for a person
GIT_LOG_MAX = 1000  # commits in one answer
LOOP_RETRY_S = 0.5  # pause of a background loop after an error, so that it does not spin
QUOTA_VALUE_MAX = 2**53  # the largest whole number that every JSON reader keeps
REQUEST_BURST_S = 2.0  # a rate of requests may be used up to this much in advance, so that a burst after a pause passes
RATES_KEPT_MAX = 4096  # callers whose rate is remembered; those that were silent for longest are forgotten first
IDEMPOTENCY_KEY_CHARS_MAX = 255
IDEMPOTENCY_KEPT_S = 24 * 3600  # how long a key of a create is remembered; a retry comes within minutes
IDEMPOTENCY_WAIT_S_MAX = 60.0  # a repeated create waits this long for the first one to be done
IDEMPOTENCY_LOOK_S = 0.05  # between two looks at a create that another process is at work on
KEY_NAME_CHARS_MAX = 100
KEYS_PER_TENANT_MAX = 1000  # those that are neither revoked nor expired
MEMBERS_PER_TENANT_MAX = 1000
TENANTS_MAX = 10_000
KEY_USE_FLUSH_S = 10.0  # how much `last used` may lag behind: one write for all keys, not one for each request
EVENT_DETAIL_CHARS_MAX = 2000  # of one value beside an event
EVENT_QUEUE_MAX = 20_000  # requests whose entry in the audit log is not written yet; beyond, they wait to be answered
EVENT_FLUSH_S = 0.25  # how long entries about requests are collected before one transaction writes them
EVENT_WAIT_S_MAX = 30.0  # a caller that waits for events is answered after this, with none
EVENT_LOOK_S = 1.0  # between two looks for events that another process has written
EVENT_PAGE_MAX = 1000
HOUSEKEEPING_S = 3600.0  # between two rounds of forgetting what is too old
USAGE_ROWS_MAX = 10_000  # of one answer about usage
SAMPLE_S_MAX = 10.0  # a node that takes longer to say what its sandboxes use is not waited for
SAMPLE_LAST_S_MAX = 1.0  # the same for one sandbox that is being ended: its end does not wait for accounting
BUDGET_VALUE_MAX = 1e12
WEBHOOKS_PER_TENANT_MAX = 20
WEBHOOK_URL_CHARS_MAX = 2048
WEBHOOK_S_MAX = 10.0  # a receiver that takes longer has failed this time
WEBHOOK_ATTEMPTS_MAX = 10  # over about a day, with the pauses below
WEBHOOK_RETRY_S_MIN = 5.0  # first pause after a delivery that failed; trebles
WEBHOOK_RETRY_S_MAX = 6 * 3600.0
WEBHOOK_AT_ONCE_MAX = 8  # deliveries under way; a receiver that hangs holds up only itself
WEBHOOK_LOOK_S = 5.0  # between two looks for deliveries that another process has left
DELIVERIES_KEPT_S = 7 * 24 * 3600  # deliveries that are done stay visible for a week
BACKUP_BYTES_MAX = 64 * GIB  # of one part of a backup; a record of millions of sandboxes is some of these

# --- SDK ------------------------------------------------------------------------------------------------------------
CLIENT_CONNECT_S_MAX = 5.0  # a server that is there accepts at once
CLIENT_ANSWER_S_MAX = 60.0  # any answer that is not a stream; the slowest is a create on a busy host
CLIENT_GRACE_S = 30.0  # beyond a command's own time limit: ending its processes, and the way back
CLIENT_IDLE_S_MAX = 60.0  # less than HTTP_KEEP_ALIVE_S: the client drops an idle connection before the server does
CLIENT_CONNECTIONS_MAX = 256  # one per stream that is being read at the same time
CLIENT_ATTEMPTS_MAX = 4  # of a request that may be repeated
CLIENT_BACKOFF_S = 0.05  # before the second attempt; doubled each time, with jitter
TERMINAL_ATTEMPTS_MAX = 10  # to sit down again after the network broke: half a minute
COMMAND_OUTPUT_BYTES_MAX = 64 * MIB  # of each stream kept in a CommandResult; the rest is read and dropped, and said so
FILE_READ_BYTES_MAX = 256 * MIB  # read into memory at once: a sandbox may offer a file without end
TAR_EXTENDED_BYTES_MAX = 64 * KIB  # the long names of one entry of an archive that a sandbox sends
UPLOAD_CHUNK_BYTES = 256 * KIB  # large enough that the cost per chunk does not show
DISCOVERY_BYTES_MAX = 64 * KIB  # server.json and the key file
ADMISSION_FREE_BYTES = 256 * MIB  # what must be free for a new sandbox to get through its start, whatever its limit
PING_EVERY_S = 5.0  # how often a guest is asked whether it is there
PING_S_MAX = 10.0  # a sandbox that burns all its CPU still answers within this
PINGS_MISSED_MAX = 3  # then its inside is taken for dead
NETWORKS_SPARE = 4  # namespace pairs made in advance: a burst of creates does not wait for `ip`

# --- network --------------------------------------------------------------------------------------------------------
POLICY_RULES_MAX = 1000  # of one policy; each decision looks at them in order
POLICY_RULE_CHARS_MAX = 300  # a host name and some ports
HOST_NAME_CHARS_MAX = 253  # what DNS allows
HEADER_VALUE_CHARS_MAX = 4096
ASK_S_MAX = 600.0  # no client holds a connection for longer while a person thinks
ASKS_OPEN_MAX = 64  # questions of one sandbox that wait for a person; more are refused at once
EGRESS_CONNECTIONS_DEFAULT = 256  # open connections of one sandbox
EGRESS_CONNECTIONS_MAX = 4096  # two sockets and two buffers each, in the server's process
EGRESS_RATE_BYTES_PER_S_MIN = 1024  # below this no handshake comes to its end
EGRESS_BACKLOG = 256  # connections of one sandbox that wait to be taken
EGRESS_CHUNK_BYTES = 256 * KIB  # one read of one direction: all that a slow peer can hold in memory
EGRESS_CONNECT_S_MAX = 10.0  # to the place that was asked for
EGRESS_IDLE_S_MAX = 900.0  # a connection on which nothing moved for this long is closed
EGRESS_HANDSHAKE_S_MAX = 10.0  # for a ClientHello, a request's head, or our own TLS handshake
EGRESS_QUIET_S = 0.3  # how long a client on another port may be silent before the server is let speak first
HELLO_BYTES_MAX = 16 * KIB  # a ClientHello; one record
HTTP_HEAD_BYTES_MAX = 64 * KIB  # the head of a request or an answer that is looked at
HTTP2_STREAMS_MAX = 100  # requests at once on one connection
HTTP2_WINDOW_BYTES = MIB  # what one end may send before the other has taken it: all that waits in memory
CONNECTION_EVENTS_MAX = 1000  # of one sandbox, kept in memory; the oldest go
NETWORK_REPORTS_PER_MINUTE = 600  # of one sandbox that go on to the audit log
SECRETS_MAX = 1000  # of one owner
DNS_QUERY_BYTES_MAX = 512  # what a question needs is far below
DNS_ANSWER_BYTES_MAX = 4096  # of an upstream server over UDP
DNS_ANSWERS_MAX = 16  # addresses that are passed on
DNS_LABELS_IN_ANSWER_MAX = 128  # compression pointers and labels that are followed in one name
DNS_QUERIES_OPEN_MAX = 64  # of one sandbox at a time
DNS_QUERIES_PER_S = 100  # of one sandbox; above it they are dropped, which clients take for a lost packet
DNS_TIMEOUT_S = 3.0  # for one question to one server
DNS_TTL_S_MAX = 60  # how long a sandbox may keep an address; after a change of policy it asks again
PINS_MAX = 4096  # addresses that a sandbox was told; the oldest go
FAKE_ADDRESSES_MAX = 1024  # names of one sandbox that wait for a person's word; the oldest go
HOST_ADDRESSES_S = 5.0  # how long the list of this host's own addresses is believed
LEAF_CERTIFICATES_MAX = 256  # made for one sandbox and kept
SECRET_HOSTS_MAX = 64
SECRET_VALUE_BYTES_MAX = 8 * KIB  # the largest tokens are some kilobytes
SECRETS_PER_SANDBOX_MAX = 64
SECRET_MASK_BYTES_MIN = 6  # a shorter value would cover words of ordinary output
SECRET_HOLD_BYTES_MIN = 4  # output that ends in less than this of a value is shown at once

# --- sandboxes that wait for an owner -------------------------------------------------------------------------------
WARM_UP_S_MAX = 120.0  # loading the interpreters of a template on a slow machine
WARM_DEMAND_WINDOW_S = 20.0  # how far back demand counts: what was asked for in this time is held ready
WARM_FLOOR = 1  # of each template one is ready even if nobody asked lately
WARM_BOX_BYTES = 128 * MIB  # what one is reckoned with; seen: 50 to 90 MiB
WARM_MEMORY_SHARE = 0.25  # of what is available on the host may wait for owners; more is taken from those who have one
WARM_REST_S = 0.5  # after a claim nothing is made in advance for so long: the machine is its owner's
WARM_LOOK_S = 0.5  # how often supply and pressure are looked at when nothing happens
CREATES_AT_ONCE = 16  # side by side; a claim takes milliseconds, and more starts at once only slow each other down
CREATES_WAITING_MAX = 1024  # in line behind them; who comes later is told so at once

# --- state that lasts -----------------------------------------------------------------------------------------------
VOLUME_SLOTS = 4  # writable and as many read-only mounts that every sandbox has from its start
VOLUME_BYTES_MIN = MIB
VOLUMES_MAX = 1000  # of one owner
SNAPSHOTS_MAX = 10_000  # of one owner
SNAPSHOT_EXPIRY_S_MAX = 10 * 365 * 24 * 3600  # ten years; for longer, set none
KEEP_LAST_MAX = 1000
FORKS_MAX = 100  # live copies in one call
FORKS_AT_ONCE = 4  # restores side by side: more only wait for the same disk and cores
SENTRY_CALL_S_MAX = 30.0  # a pause waits for every system call that is under way
SENTRY_ANSWER_BYTES_MAX = 64 * KIB
STILL_S = 5.0  # a guest that says nothing for so long stands still; asked only where a kill -9 left it open
RECLAIM_AFTER_S = 5.0  # of standby, before its memory goes to swap: a sandbox that wakes at once should find it
IDLE_S_MIN = 1.0
STATE_WAIT_S_MAX = 120.0  # for another caller's pause, resume or snapshot of the same sandbox
DIFF_ENTRIES_MAX = 100_000  # files that one comparison may name
SLEEP_RETRY_S = 30.0  # after a deadline at which a sandbox could not be put to sleep, until the next attempt

# E2B's API
E2B_KEEPALIVE_S = 90.0  # between signs of life on a stream, for a caller who asks for no other
E2B_INTERPRETER_KEEPALIVE_S = 5.0  # the same while code runs, as E2B's interpreter does it
E2B_SAMPLE_S = 0.1  # between two looks at the counters; long enough for a percentage, short enough to wait for
E2B_UPLOAD_FILES_MAX = 10_000  # in one form
CLIENT_STATE_S_MAX = 600.0  # an answer about a pause, a resume, a snapshot or forks: gigabytes of memory on a slow disk
STANDBY_CALLS_S_MAX = 2.0  # for calls under way to be answered before a sandbox stands still
