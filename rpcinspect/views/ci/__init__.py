"""What a command found out, as CI servers and code hosts show it: results of tests, and annotations."""
