/** Layout version of the embedded index. Each version has its own folder. */
export const LAYOUT = 'v6';

/** Layout version of indices at a server. */
export const LAYOUT_OF_SERVER = 'v4';
