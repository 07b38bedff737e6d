/** Manifests of the reference's documentation, with the fields that an API server adds. */
import { parse } from 'yaml';

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly annotations?: Readonly<Record<string, string>> };
  readonly spec: object;
}

const manifest = (text: string): Manifest => parse(text) as Manifest;

export const ANNOTATED_SERVICE = manifest(`
apiVersion: v1
kind: Service
metadata:
  name: nginx
  annotations:
    tailscale.com/expose: "true"
spec:
  selector:
    app: nginx
  ports:
  - port: 80
`);

export const LOAD_BALANCER = manifest(`
apiVersion: v1
kind: Service
metadata:
  name: nginx
spec:
  type: LoadBalancer
  loadBalancerClass: tailscale
  selector:
    app: nginx
  ports:
  - name: http
    port: 80
    targetPort: 80
`);

export const EGRESS_NAME = manifest(`
apiVersion: v1
kind: Service
metadata:
  name: rds-staging
  annotations:
    tailscale.com/tailnet-fqdn: rds.tailnet-1234.ts.net
spec:
  type: ExternalName
  externalName: placeholder
`);

export const EGRESS_ADDRESS = manifest(`
apiVersion: v1
kind: Service
metadata:
  name: rds-staging
  annotations:
    tailscale.com/tailnet-ip: 100.64.0.7
spec:
  type: ExternalName
  externalName: placeholder
`);

export const INGRESS = manifest(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: nginx
  annotations:
    tailscale.com/http-redirect: "true"
spec:
  ingressClassName: tailscale
  defaultBackend:
    service:
      name: nginx
      port:
        number: 80
  tls:
  - hosts:
    - nginx
`);

export const SUBNET_ROUTER = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: Connector
metadata:
  name: prod
spec:
  tags:
  - "tag:prod"
  hostnamePrefix: ts-prod
  replicas: 2
  subnetRouter:
    advertiseRoutes:
    - "10.40.0.0/14"
    - "192.168.0.0/14"
`);

export const EXIT_NODE = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: Connector
metadata:
  name: exit-node
spec:
  exitNode: true
  replicas: 2
  hostnamePrefix: exit-node
  tags:
  - tag:k8s-operator
`);

export const APP_CONNECTOR = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: Connector
metadata:
  name: saas
spec:
  hostname: saas
  appConnector: {}
`);

export const PROXY_CLASS = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: ProxyClass
metadata:
  name: prod
spec:
  metrics:
    enable: true
  statefulSet:
    annotations:
      platform-component: infra
    pod:
      labels:
        team: eng
      nodeSelector:
        kubernetes.io/os: "linux"
      imagePullSecrets:
      - name: "foo"
      tailscaleContainer:
        image: "ghcr.io/tailscale/tailscale:v1.64"
        imagePullPolicy: IfNotPresent
      tailscaleInitContainer:
        image: "ghcr.io/tailscale/tailscale:v1.64"
        imagePullPolicy: IfNotPresent
`);

export const DNS_CONFIG = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: DNSConfig
metadata:
  name: ts-dns
spec:
  nameserver: {}
`);

/** The second sample of the DNSConfig documentation: placement and resources of its pods. */
export const DNS_CONFIG_PODS = manifest(`
apiVersion: tailscale.com/v1alpha1
kind: DNSConfig
metadata:
  name: ts-dns
spec:
  nameserver:
    replicas: 2
    service:
      clusterIP: 10.96.0.53
    pod:
      imagePullSecrets:
      - name: foo
      nodeSelector:
        kubernetes.io/os: linux
      tolerations:
      - key: dedicated
        operator: Exists
`);
