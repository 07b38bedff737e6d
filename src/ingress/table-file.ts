/** Reads the routing table that the operator writes, from a mounted Secret. */
import { openFollowedFile, type FileToFollow, type FollowedFile } from '../followed-file.ts';
import type { IngressTable } from '../wire/ingress-table.ts';
import { MAX_TABLE_BYTES, parseTable } from './routes.ts';

export type TableFile = FollowedFile<IngressTable>;

/** Resolves after the file has been read once; see `openFollowedFile`. */
export function openTableFile({
  use,
  ...options
}: FileToFollow & {
  /** Called with each new table before it becomes current. If the function throws, the previous table stays. */
  readonly use: (table: IngressTable) => void;
}): Promise<TableFile> {
  return openFollowedFile({
    ...options,
    setting: 'table',
    maxBytes: MAX_TABLE_BYTES,
    read(text) {
      const table = parseTable(text);
      use(table);
      return table;
    },
    words: { read: 'table read', kept: 'table not read; the last valid one stays in use' },
    describe: ({ hosts, certificates }) => ({ hosts: hosts.length, certificates: certificates.length }),
  });
}
