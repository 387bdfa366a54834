"""Recordings: a command is run, every RPC process in it is recorded, nothing in its code is changed.

In: a command line and a file to write. Out: a capture, and what is told of it at the end. Imports nothing of
the stages that decode.

    launcher    runs the command; knows no mechanism
    record      joins the parts, says what a way of recording must offer, and tells what came of it
    wire        one of them: packets, by the sniffer of capture/; with namespace
    agent       the other: messages; with library
    in_process  recording from within a program, by the program itself
    family      the same with the processes that the program starts
    processes   what the processes of the command tell of themselves, and how they ended
    startup/    what runs inside the processes of the command

The package is not called `recording`: that is what notebooks call, `rpcinspect.recording(...)`.
"""
