/** Rules about combinations of gateway settings. */
import type { GATEWAY_SETTINGS } from '../config/gateway.ts';
import { readableFiles, writableDirectories } from '../config/setting-paths.ts';
import type { SettingCheck } from '../config/settings.ts';
import { assertLoopbackListener } from '../tailnet/static-identity.ts';
import { assertReviewable } from './access-review.ts';
import { splitRecorders } from './portal.ts';
import { assertPrivateProxyListener } from '../tailnet/proxied-listener.ts';

/** Checks that run after all settings of a gateway are read. */
export const GATEWAY_CHECKS: readonly SettingCheck<typeof GATEWAY_SETTINGS>[] = [
  ...readableFiles('kubeconfig', 'clusters', 'staticIdentity', 'tlsCert', 'tlsKey', 'policy'),
  ...writableDirectories('stateDirectory', 'lateDirectory'),
  {
    settings: ['tls', 'tlsCert', 'tlsKey'],
    check({ tls, tlsCert, tlsKey }) {
      if (tls === 'files' && (tlsCert === undefined || tlsKey === undefined))
        throw new Error('tls=files needs both tlsCert and tlsKey');
    },
  },
  {
    settings: ['tls', 'identity'],
    check({ tls, identity }) {
      if (tls === 'tailscale' && identity !== 'tailscale')
        throw new Error('tls=tailscale needs identity=tailscale');
    },
  },
  {
    settings: ['identity', 'staticIdentity'],
    check({ identity, staticIdentity }) {
      if (identity === 'static' && staticIdentity === undefined)
        throw new Error('identity=static needs staticIdentity: name the JSON file with the identity');
    },
  },
  {
    settings: ['identity', 'listen'],
    check({ identity, listen }) {
      if (identity === 'static') assertLoopbackListener(listen.host);
    },
  },
  {
    settings: ['identity', 'proxyProtocol', 'listen'],
    check({ identity, proxyProtocol, listen }) {
      if (identity === 'tailscale' && proxyProtocol === 'require') assertPrivateProxyListener(listen.host);
    },
  },
  {
    settings: ['k3s', 'vpnAuth', 'clusters', 'mode'],
    check({ k3s, vpnAuth, clusters, mode }) {
      if (!k3s && vpnAuth !== undefined) throw new Error('vpnAuth needs k3s=true');
      if (k3s && (clusters !== undefined || mode !== 'auth'))
        throw new Error('k3s=true needs mode=auth, and excludes clusters');
    },
  },
  { settings: ['accessReview', 'mode'], check: assertReviewable },
  { settings: ['portalRecorders'], check: ({ portalRecorders }) => void splitRecorders(portalRecorders) },
];
