"""Processes of the store: one writer, some readers and the sender of callbacks, children of the hub.

A thread that computes beside the writer divides its commits by forty, and long history would hold up the hub's loop;
so both have an interpreter of their own. They end when the hub's end of their socket does.

    frames          values on a Unix socket, each with its length
    child_process   hub: one child, its socket and its end
    child           child: arguments, signals, log
    collector       thresholds of the garbage collector of hub and children
    checkpointer    child: checkpoints of the write-ahead log, in a thread
    writer_process  child: group commits
    writer          hub: ``WriterProcess``
    writer_options  options and bounds of it
    writer_commands  its commands, each with its arguments and its result
    reader_process  child: pages, rendered
    rendered        records of rendered pages
    progress_loop   hub: progress of watchers
    fair_queue      calls that wait, a turn for each owner
    large_share     turns of large publications
    large_transfer  a large publication in parts
    readers         hub: ``ReaderPool``
    sender_process  child: callbacks
    sender          hub: ``SenderProcess``; ``sender_commands`` has the frames between the two, and its options
"""
