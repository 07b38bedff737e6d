#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/tailcast.conf
  elif ! getent passwd tailcast-gateway >/dev/null && command -v useradd >/dev/null; then
    useradd --system --no-create-home --shell /usr/sbin/nologin tailcast-gateway
  fi
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Running services restart with the new version. Accepted recordings are kept.
    systemctl try-restart tailcast-gateway.service tailcast-recorder.service
  fi
fi
