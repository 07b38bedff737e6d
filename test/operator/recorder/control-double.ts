/** A control server in memory. */
import type { TailnetControl, TailnetDevice } from '../../../src/operator/auth-keys.ts';

export interface ControlDouble extends TailnetControl {
  readonly keys: Map<string, { readonly key: string; readonly tags: readonly string[]; usable: boolean }>;
  readonly devices: Map<string, TailnetDevice>;
  readonly deleted: string[];
  readonly tags: Map<string, readonly string[]>;
  /** Makes every call fail. */
  broken: Error | undefined;
}

export function createControlDouble(nowMs: () => number): ControlDouble {
  const keys: ControlDouble['keys'] = new Map();
  const devices = new Map<string, TailnetDevice>();
  const deleted: string[] = [];
  const tags = new Map<string, readonly string[]>();

  const double: ControlDouble = {
    loginServer: 'https://control.example.com',
    keys,
    devices,
    deleted,
    tags,
    broken: undefined,
    async createKey(wanted) {
      check();
      const id = `key-${keys.size + 1}`;
      keys.set(id, { key: `tskey-${keys.size + 1}`, tags: wanted.tags, usable: true });
      return { id, key: `tskey-${keys.size}`, expiresAtMs: nowMs() + wanted.lifetimeMs };
    },
    async keyUsable(id) {
      check();
      return keys.get(id)?.usable === true;
    },
    async revokeKey(id) {
      check();
      const key = keys.get(id);
      if (key !== undefined) key.usable = false;
    },
    async device(id) {
      check();
      return devices.get(id);
    },
    async deleteDevice(id) {
      check();
      devices.delete(id);
      deleted.push(id);
    },
    async setTags(id, wanted) {
      check();
      tags.set(id, wanted);
    },
  };
  function check(): void {
    if (double.broken !== undefined) throw double.broken;
  }
  return double;
}
