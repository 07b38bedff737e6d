/** Layout of the files of the embedded index. Another one goes into another folder. */
export const LAYOUT = 'v2';
