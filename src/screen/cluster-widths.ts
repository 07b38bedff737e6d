/**
 * Makes the emulator use the character widths of `src/terminal/cell-width`, through xterm's interface for Unicode
 * versions.
 */
import type { IUnicodeVersionProvider } from '@xterm/headless';
import { cellWidth, CLUSTER, joinCluster, type Cluster } from '../terminal/cell-width.ts';

const CLUSTERS: readonly Cluster[] = Object.values(CLUSTER);

/**
 * NOTE: the emulator stores the state after each character as bits. Bit 0 is set if the character was joined to the
 * previous character, bits 1 and 2 are the width, and the higher bits are the state of the grapheme cluster.
 */
function stateOf(cluster: Cluster, width: number, isJoined: boolean): number {
  return (cluster << 3) | (width << 1) | (isJoined ? 1 : 0);
}

const PLAIN = stateOf(CLUSTER.character, 1, false);

export const CLUSTER_WIDTHS: IUnicodeVersionProvider = {
  version: 'tailcast',
  wcwidth: cellWidth,
  charProperties(codePoint, preceding) {
    if (codePoint < 0x300) return PLAIN;
    const { isJoined, cluster } = joinCluster(CLUSTERS[preceding >> 3] ?? CLUSTER.none, codePoint);
    const width = isJoined ? (preceding >> 1) & 3 : Math.max(1, cellWidth(codePoint));
    return stateOf(cluster, width, isJoined);
  },
};
