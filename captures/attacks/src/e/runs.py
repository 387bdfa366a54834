import os
class Run:
    def __init__(self, folder):
        self.folder = folder
    @property
    def folder(self):
        return self._folder
    @folder.setter
    def folder(self, value):
        os.makedirs(value, exist_ok=True)
        self._folder = value
