/** The WebSocket subprotocol under which a recorder shows a recording line by line; asciinema players ask for it. */
export const LIVE_SUBPROTOCOL = 'v2.asciicast';
