#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "$1" = purge ]; then
  for folder in /var/lib/tailcast-recorder /var/lib/private/tailcast-recorder; do
    if [ -d "$folder" ]; then
      echo "tailcast: the recordings in $folder were not removed; delete the directory if you no longer need them"
      break
    fi
  done
fi
