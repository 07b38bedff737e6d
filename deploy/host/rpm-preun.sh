if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
  systemctl disable --now tailcast-gateway.service tailcast-recorder.service
fi
