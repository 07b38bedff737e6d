/** WebSocket subprotocol with which asciinema players request the events of a recording. */
export const LIVE_SUBPROTOCOL = 'v2.asciicast';
