/** A control server in memory. */
import type {
  TailnetControl,
  TailnetDevice,
  TailnetService,
  TailnetServices,
} from '../../../src/operator/auth-keys.ts';

export interface ControlDouble extends TailnetControl {
  readonly keys: Map<string, { readonly key: string; readonly tags: readonly string[]; usable: boolean }>;
  readonly devices: Map<string, TailnetDevice>;
  /** Machine keys, by device. */
  readonly machineKeys: Map<string, string>;
  /** Number of requests that listed all nodes. */
  listed: number;
  readonly deleted: string[];
  readonly tags: Map<string, readonly string[]>;
  readonly routes: Map<string, readonly string[]>;
  /** Absent for a control server without Tailscale Services. */
  services?: TailnetServices;
  readonly known: Map<string, TailnetService>;
  /** If set, every call fails with this error. */
  broken: Error | undefined;
}

export function createControlDouble(nowMs: () => number): ControlDouble {
  const keys: ControlDouble['keys'] = new Map();
  const devices = new Map<string, TailnetDevice>();
  const machineKeys = new Map<string, string>();
  const deleted: string[] = [];
  const tags = new Map<string, readonly string[]>();
  const routes = new Map<string, readonly string[]>();
  const known = new Map<string, TailnetService>();

  const double: ControlDouble = {
    loginServer: 'https://control.example.com',
    issuesCertificates: true,
    known,
    services: {
      async get(name) {
        check();
        return known.get(name);
      },
      async list() {
        check();
        return [...known.values()];
      },
      async put(service) {
        check();
        const addrs = service.addrs.length === 0 ? [`100.100.0.${known.size}`] : service.addrs;
        known.set(service.name, { ...service, addrs });
      },
      async remove(name) {
        check();
        known.delete(name);
      },
    },
    keys,
    devices,
    machineKeys,
    listed: 0,
    deleted,
    tags,
    routes,
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
      const device = devices.get(id);
      return device === undefined ? undefined : { ...device, machineKey: machineKeys.get(id) };
    },
    async allDevices() {
      check();
      double.listed += 1;
      return [...devices].map(([id, { hostname }]) => ({
        id,
        name: hostname,
        tags: tags.get(id) ?? [],
        machineKey: machineKeys.get(id) ?? '',
      }));
    },
    async deleteDevice(id) {
      check();
      deleted.push(id);
      return devices.delete(id);
    },
    async approveRoutes(id, wanted) {
      check();
      routes.set(id, wanted);
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
