"""A capture in the terminal: panes, views and moves of `rpcinspect browse`, on Textual.

Nothing that is shown is worked out here: lists, details and answers are those of the run and of the commands.
"""
