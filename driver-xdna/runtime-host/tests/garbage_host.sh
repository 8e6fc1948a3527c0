#!/bin/sh
# A helper that does not speak the protocol and does not end.
echo "what is a frame?" >&2
printf 'GET / HTTP/1.1\r\n\r\n' >&0
sleep 600
