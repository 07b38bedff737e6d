/** WebSocket subprotocol for the events of a recording, which asciinema players request. */
export const LIVE_SUBPROTOCOL = 'v2.asciicast';
