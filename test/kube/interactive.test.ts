import { describe, expect, it } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { classifyRequest, type RequestClass } from '../../src/kube/interactive.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { rowsOf } from '../support/text-table.ts';

function classOf(method: string, target: string, upgrade: boolean): RequestClass {
  return classifyRequest(parseRequestInfo(method, parseTarget(target)), { upgrade, method });
}

const POD = '/api/v1/namespaces/n/pods/p';
const CONFIG_MAPS = '/api/v1/namespaces/kube-system/configmaps';
const CRD = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/c';
const FLOWS = '/apis/argoproj.io/v1/namespaces/n/workflows';
const JOBSET = '/apis/jobset.x-k8s.io/v1/namespaces/n/jobsets/j';
const METRICS = '/apis/custom.metrics.k8s.io/v1beta1';
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/n/leases/l';
const VM = '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v';

describe('classifyRequest', () => {
  // columns: name | method | target | class | class of an upgrade
  it.each(
    rowsOf(`
    E1 exec by SPDY | POST | ${POD}/exec?command=sh | exec | exec
    E1 exec by WebSocket | GET | ${POD}/exec | exec | exec
    E1 exec by any other method | PUT | ${POD}/exec | exec | exec
    D1 exec with a trailing slash | POST | ${POD}/exec/ | exec | exec
    D3 exec with an encoded letter | POST | ${POD}/%65xec | exec | exec
    D3 exec in the wrong case | POST | ${POD}/EXEC | unknownSubresource | opaqueUpgrade
    D7 a pod named exec | GET | /api/v1/namespaces/n/pods/exec | plain | opaqueUpgrade
    D7 a namespace named exec | GET | /api/v1/namespaces/exec | plain | opaqueUpgrade
    D8 exec in another group | GET | /apis/x/v9/namespaces/n/pods/p/exec | exec | exec
    D8 exec of another resource | GET | /apis/x/v9/things/t/exec | exec | exec
    D8 exec behind a path verb | GET | /api/v1/watch/namespaces/n/pods/p/exec | exec | exec
    D8 console | GET | /apis/x/v1/namespaces/n/things/t/console | unknownSubresource | opaqueUpgrade
    E3 attach | POST | ${POD}/attach | attach | attach
    E4 ephemeral container added | PATCH | ${POD}/ephemeralcontainers | ephemeralContainers | opaqueUpgrade
    E4 ephemeral containers replaced | PUT | ${POD}/ephemeralcontainers | ephemeralContainers | opaqueUpgrade
    E4 ephemeral containers read | GET | ${POD}/ephemeralcontainers | plain | opaqueUpgrade
    E5 pod created | POST | /api/v1/namespaces/n/pods | workload | opaqueUpgrade
    E5 pod changed | PATCH | ${POD} | workload | opaqueUpgrade
    E5 pod replaced | PUT | ${POD} | workload | opaqueUpgrade
    E5 pod deleted | DELETE | ${POD} | plain | opaqueUpgrade
    E5 pod status | PUT | ${POD}/status | plain | opaqueUpgrade
    E5 pod template | POST | /api/v1/namespaces/n/podtemplates | workload | opaqueUpgrade
    E5 controller | PUT | /api/v1/namespaces/n/replicationcontrollers/r | workload | opaqueUpgrade
    E5 deployment | PATCH | /apis/apps/v1/namespaces/n/deployments/d | workload | opaqueUpgrade
    E5 stateful set | POST | /apis/apps/v1/namespaces/n/statefulsets | workload | opaqueUpgrade
    E5 daemon set | PUT | /apis/apps/v1/namespaces/n/daemonsets/d | workload | opaqueUpgrade
    E5 replica set | POST | /apis/apps/v1/namespaces/n/replicasets | workload | opaqueUpgrade
    E5 revision | POST | /apis/apps/v1/namespaces/n/controllerrevisions | workload | opaqueUpgrade
    E5 job | POST | /apis/batch/v1/namespaces/n/jobs | workload | opaqueUpgrade
    E5 cron job | PATCH | /apis/batch/v1/namespaces/n/cronjobs/c | workload | opaqueUpgrade
    E5 old group | POST | /apis/extensions/v1beta1/namespaces/n/deployments | workload | opaqueUpgrade
    E5 with an identity | POST | /apis/apps/v1/namespaces/n/deployments:0a1b | workload | opaqueUpgrade
    E5 scale | PATCH | /apis/apps/v1/namespaces/n/deployments/d/scale | plain | opaqueUpgrade
    E5 read | GET | /apis/apps/v1/namespaces/n/deployments/d | plain | opaqueUpgrade
    E5 below a prefix | POST | /clusters/c/api/v1/namespaces/n/pods | workload | opaqueUpgrade
    E5 custom resource | POST | ${FLOWS} | customResource | opaqueUpgrade
    E5 custom, in a group of the SIGs | PUT | ${JOBSET} | customResource | opaqueUpgrade
    E5 custom status | PUT | ${FLOWS}/w/status | customResource | opaqueUpgrade
    E5 custom binding | POST | ${FLOWS}/w/binding | customResource | opaqueUpgrade
    E5 custom scale | POST | ${FLOWS}/w/scale | customResource | opaqueUpgrade
    E5 custom token | POST | ${FLOWS}/w/token | customResource | opaqueUpgrade
    E5 custom read | GET | ${FLOWS} | plain | opaqueUpgrade
    E5 no custom resource | PUT | ${LEASE} | plain | opaqueUpgrade
    E12 secret read | GET | /api/v1/namespaces/n/secrets/s | secretRead | opaqueUpgrade
    E12 secrets listed | GET | /api/v1/secrets | secretRead | opaqueUpgrade
    E12 secrets watched | GET | /api/v1/secrets?watch=1 | secretRead | secretRead
    E12 secrets watched by path | GET | /api/v1/watch/secrets | secretRead | secretRead
    E12 secrets with an identity | GET | /clusters/c/api/v1/secrets:0a1b | secretRead | opaqueUpgrade
    E12 token review | POST | /apis/authentication.k8s.io/v1/tokenreviews | plain | opaqueUpgrade
    E6 kubelet exec | POST | /api/v1/nodes/n/proxy/exec/ns/pod/c | nodeProxy | nodeProxy
    E6 kubelet run by GET | GET | /api/v1/nodes/https:n:10250/proxy/run/ns/pod/c | nodeProxy | nodeProxy
    E6 kubelet root | GET | /api/v1/nodes/n/proxy | nodeProxy | nodeProxy
    E6 node status | GET | /api/v1/nodes/n/status | plain | opaqueUpgrade
    E7 pod proxy | GET | ${POD}/proxy/ | podProxy | podProxy
    E7 pod proxy with a port | POST | /api/v1/namespaces/n/pods/https:p:8443/proxy/a%2Fb | podProxy | podProxy
    E7 service proxy | GET | /api/v1/namespaces/n/services/https:kubernetes:443/proxy/api | serviceProxy | serviceProxy
    E7 exec in a service proxy | GET | /api/v1/namespaces/n/services/s/proxy${POD}/exec | serviceProxy | serviceProxy
    E8 port-forward | POST | ${POD}/portforward | portForward | portForward
    E9 KubeVirt console | GET | ${VM}/console | unknownSubresource | opaqueUpgrade
    E9 start by GET | GET | ${VM}/start | unknownSubresource | opaqueUpgrade
    E9 unknown subresource of a pod | GET | ${POD}/unknown | unknownSubresource | opaqueUpgrade
    E9 custom status read | GET | ${FLOWS}/w/status | plain | opaqueUpgrade
    E9 custom scale read | GET | ${FLOWS}/w/scale | plain | opaqueUpgrade
    E9 portforward of another group | GET | /apis/x/v1/things/t/portforward | unknownSubresource | opaqueUpgrade
    E9 pod metrics | GET | /apis/metrics.k8s.io/v1beta1/namespaces/n/pods/p | plain | opaqueUpgrade
    E9 custom metric | GET | ${METRICS}/namespaces/n/pods/*/requests | plain | opaqueUpgrade
    E9 custom metric written | POST | ${METRICS}/namespaces/n/pods/p/requests | unknownSubresource | opaqueUpgrade
    E9 behind a custom metric | GET | ${METRICS}/namespaces/n/pods/p/requests/x | unknownSubresource | opaqueUpgrade
    E9 KubeVirt port-forward | GET | ${VM}/portforward/22 | unknownSubresource | opaqueUpgrade
    E9 cluster proxy | GET | /apis/cluster.karmada.io/v1alpha1/clusters/x/proxy${POD}/exec | otherProxy | opaqueUpgrade
    E9 pods of another group | GET | /apis/x/v1/namespaces/n/pods/p/proxy/a | otherProxy | opaqueUpgrade
    E9 nodes of another group | GET | /apis/x/v1/nodes/n/proxy/metrics | otherProxy | opaqueUpgrade
    E9 a proxy further down | GET | /apis/x/v1/things/t/a/b/proxy | otherProxy | opaqueUpgrade
    E9 a proxy of nothing | GET | /x/c/api/v1/nodes/n/proxy/run | otherProxy | opaqueUpgrade
    E6 kubelet below a prefix | GET | /clusters/c/api/v1/nodes/n/proxy/run | nodeProxy | nodeProxy
    E1 exec below a prefix | GET | /k8s/clusters/c-1${POD}/exec | exec | exec
    E1 exec with an identity | GET | /clusters/c/api/v1/namespaces/n/pods:0a1b/p/exec | exec | exec
    E1 exec below an unknown prefix | GET | /x/c-1${POD}/exec | unknownSubresource | opaqueUpgrade
    E9 an object named proxy | GET | /apis/x/v1/things/proxy | plain | opaqueUpgrade
    E9 a resource named proxy | GET | /apis/x/v1/namespaces/n/proxy/p | plain | opaqueUpgrade
    E9 a namespace named proxy | GET | /api/v1/namespaces/proxy/pods/p | plain | opaqueUpgrade
    E9 start | PUT | /apis/x/v1/namespaces/n/things/t/start | unknownSubresource | opaqueUpgrade
    E9 status | PUT | /apis/x/v1/namespaces/n/things/t/status | customResource | opaqueUpgrade
    E9 behind status | GET | /apis/x/v1/namespaces/n/things/t/status/x | unknownSubresource | opaqueUpgrade
    E9 a write to no resource | POST | /version | unknownSubresource | opaqueUpgrade
    E9 a secret made | POST | /api/v1/namespaces/n/secrets | accessChange | opaqueUpgrade
    E9 secrets of another group | POST | /apis/x/v1/namespaces/n/secrets | customResource | opaqueUpgrade
    E9 an API registered | POST | /apis/apiregistration.k8s.io/v1/apiservices | accessChange | opaqueUpgrade
    E9 users of EKS | PUT | ${CONFIG_MAPS}/aws-auth | accessChange | opaqueUpgrade
    E9 users of EKS patched | PATCH | ${CONFIG_MAPS}/aws-auth | accessChange | opaqueUpgrade
    E9 users of EKS deleted | DELETE | ${CONFIG_MAPS}/aws-auth | accessChange | opaqueUpgrade
    E9 a ConfigMap that may be for users of EKS | POST | ${CONFIG_MAPS} | accessChange | opaqueUpgrade
    E9 all ConfigMaps deleted | DELETE | ${CONFIG_MAPS} | accessChange | opaqueUpgrade
    E9 users of IAM Authenticator | PATCH | ${CONFIG_MAPS}/aws-iam-authenticator | accessChange | opaqueUpgrade
    E9 CAs of API extensions | PUT | ${CONFIG_MAPS}/extension-apiserver-authentication | accessChange | opaqueUpgrade
    E9 users of EKS in kcp | PUT | /clusters/c${CONFIG_MAPS}:0a1b/aws-auth | accessChange | opaqueUpgrade
    E9 users of EKS read | GET | ${CONFIG_MAPS}/aws-auth | plain | opaqueUpgrade
    E9 another ConfigMap | PUT | ${CONFIG_MAPS}/coredns | plain | opaqueUpgrade
    E9 a ConfigMap elsewhere | PUT | /api/v1/namespaces/n/configmaps/aws-auth | plain | opaqueUpgrade
    E12 custom resource definition | PATCH | ${CRD} | accessChange | opaqueUpgrade
    E10 list | GET | /api/v1/pods | plain | opaqueUpgrade
    E10 get | GET | ${POD} | plain | opaqueUpgrade
    E10 health | GET | /healthz | plain | opaqueUpgrade
    E10 openapi | GET | /openapi/v2 | plain | opaqueUpgrade
    E10 the root | GET | / | plain | opaqueUpgrade
    E10 discovery | GET | /apis/apps/v1 | plain | opaqueUpgrade
    E10 discovery below a prefix | GET | /clusters/root:org/apis/apps/v1 | plain | opaqueUpgrade
    E10 discovery with a slash | GET | /api/v1/ | plain | opaqueUpgrade
    E10 discovery of Rancher | GET | /k8s/clusters/c-1/api | plain | opaqueUpgrade
    E10 a check | GET | /readyz/etcd | plain | opaqueUpgrade
    E10 keys | GET | /openid/v1/jwks | plain | opaqueUpgrade
    E12 secrets of kcp | GET | /services/apiexport/a/b/clusters/*/api/v1/secrets | unknownSubresource | opaqueUpgrade
    E12 secrets of Rancher | GET | /k8s/clusters/c-1/v1/secrets | unknownSubresource | opaqueUpgrade
    E12 secrets below an unknown prefix | GET | /x/api/v1/secrets | unknownSubresource | opaqueUpgrade
    E12 secrets of the local cluster | GET | /v1/secrets | unknownSubresource | opaqueUpgrade
    E12 a similar path | GET | /versions/secrets | unknownSubresource | opaqueUpgrade
    E10 root | GET | / | plain | opaqueUpgrade
    E10 a path verb without a resource | GET | /api/v1/watch | plain | opaqueUpgrade
    E15 watch | GET | /api/v1/pods?watch=1 | longRunning | streamUpgrade
    E15 watch of one name | GET | /apis/x/v1/things?watch&fieldSelector=metadata.name%3Da | longRunning | streamUpgrade
    E15 watch by path | GET | /api/v1/watch/pods | longRunning | streamUpgrade
    E15 subresource of a path watch | GET | /api/v1/watch/namespaces/n/pods/p/vnc | unknownSubresource | opaqueUpgrade
    E15 log | GET | ${POD}/log?follow=true | longRunning | streamUpgrade
    E15 log by POST | POST | ${POD}/log | unknownSubresource | opaqueUpgrade
    E15 log in another group | GET | /apis/x/v1/namespaces/n/pods/p/log | longRunning | opaqueUpgrade
    D11 watch=0 | GET | /api/v1/pods?watch=0 | plain | opaqueUpgrade
    D11 first watch value counts | GET | /api/v1/pods?watch=&watch=false | longRunning | streamUpgrade
    profiles | GET | /debug/pprof/profile | longRunning | opaqueUpgrade
  `),
  )('%s', (_name, method = '', target = '', plain, upgraded) => {
    expect(classOf(method, target, false)).toBe(plain);
    expect(classOf(method, target, true)).toBe(upgraded);
  });

  it.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('D6 refuses %s below /watch/', (method) => {
    for (const target of ['/apis/x/v1/watch/namespaces/n/things', '/api/v1/watch/namespaces/n/secrets/s'])
      expect(() => classOf(method, target, false)).toThrow(
        expect.objectContaining({ code: 'POLICY_REFUSED' }),
      );
  });

  it('D6 refuses the old proxy form', () => {
    for (const target of ['/api/v1/proxy/nodes/n/run', '/api/v1/proxy/namespaces/n/pods/p']) {
      expect(() => classOf('GET', target, false)).toThrow(
        expect.objectContaining({ code: 'POLICY_REFUSED' }),
      );
    }
  });
});
