/** Layout of the files of the embedded index. Another one goes into another folder. */
export const LAYOUT = 'v6';

/** The same of indices at a server. */
export const LAYOUT_OF_SERVER = 'v4';
