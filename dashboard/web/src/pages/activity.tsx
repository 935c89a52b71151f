import type { ComponentChildren } from 'preact';
import { num, plural, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { href } from '../router';
import type { AuditAction, AuditEntry } from '../types';
import { At, Card } from '../ui/card';
import { JobLink, Name, TenantLink } from '../ui/name';
import { Loaded } from '../ui/states';

const tenant = (e: AuditEntry) => e.tenant && <TenantLink queue={e.queue} tenant={e.tenant} />;
const of = (e: AuditEntry) => <>{e.tenant && <> of {tenant(e)}</>}{e.kind && <> of kind <bdi>{e.kind}</bdi></>}</>;
const until = (e: AuditEntry) => e.until && <> until <At at={e.until} now={time(e.at)} /></>;
const whose = (e: AuditEntry) => <>{e.endpoint && <>endpoint <bdi>{e.endpoint}</bdi>{e.tenant && ' of '}</>}{tenant(e) ?? (e.kind ? <>jobs of kind <bdi>{e.kind}</bdi></> : !e.endpoint && 'all of the queue')}</>;
const jobs = (verb: string, then = '') => (e: AuditEntry) => <>{verb} {e.id ? <>job <JobLink queue={e.queue} id={e.id} /></> : <>{num(e.count)} {e.state ?? ''} {e.count === 1 ? 'job' : 'jobs'}</>}{of(e)}{then}</>;
const periodic = (verb: string) => (e: AuditEntry) => <>{verb} periodic job <bdi>{e.id}</bdi>{of(e)}</>;

function keys({ before, after }: AuditEntry): string {
	const ids = new Set(Object.keys({ ...before, ...after }));
	return `${!before ? 'created' : !after ? 'revoked' : 'changed'} ${plural(ids.size, 'API key')}`;
}

/** What an operator did: the sentence after the name. */
const did: Record<AuditAction, (e: AuditEntry) => ComponentChildren> = {
	pause: (e) => <>paused {whose(e)}{until(e)}</>,
	resume: (e) => <>resumed {whose(e)}</>,
	override: (e) => <>changed <q><bdi>{e.limit}</bdi></q>{of(e)}{until(e)}</>,
	clear: (e) => <>cleared the override of <q><bdi>{e.limit}</bdi></q>{of(e)}</>,
	publish: () => 'published limits',
	unregister: (e) => <>unregistered queue <bdi>{e.before?.queue}</bdi></>,
	keys,
	refused: () => 'was refused',
	cancel: jobs('cancelled'),
	run: jobs('ran'),
	wake: jobs('let', ' try again now'),
	retry: jobs('retried'),
	delete: jobs('deleted'),
	enable: (e) => <>enabled endpoint <bdi>{e.endpoint}</bdi>{of(e)}</>,
	'periodic add': periodic('set'),
	'periodic remove': periodic('removed'),
	'periodic pause': periodic('paused'),
	'periodic resume': periodic('resumed'),
};

function Sentence({ e }: { e: AuditEntry }) {
	// The server counts refusals that come too fast to be listed.
	if (e.action === 'refused' && e.count > 0) return <>{plural(e.count, 'further request')} {e.count === 1 ? 'was' : 'were'} refused</>;
	const who = e.action === 'refused' && e.actor === 'nobody' ? 'A caller without a valid key' : <b><bdi>{e.actor}</bdi></b>;
	const what = did[e.action] as typeof did[AuditAction] | undefined;
	return <>{who}{what ? <> {what(e)}</> : `: ${e.action}`}{e.reason && <span class="why">: <bdi>{e.reason}</bdi></span>}</>;
}

function Differences({ e }: { e: AuditEntry }) {
	const names = [...new Set([...Object.keys(e.before ?? {}), ...Object.keys(e.after ?? {})])].sort();
	if (names.length === 0 || e.action === 'unregister') return null;
	return (
		<ul class="differences">
			{names.slice(0, 20).map((n) => <li key={n}><bdi>{n}</bdi>: {e.before?.[n] && <><s>{e.before[n]}</s> → </>}<b>{e.after?.[n] ?? 'none'}</b></li>)}
			{names.length > 20 && <li>and {num(names.length - 20)} more</li>}
		</ul>
	);
}

/** The newest changes by operators and publishers: of one queue, or of all. */
export function Changes({ queue }: { queue?: string }) {
	const audit = useResource<{ entries: AuditEntry[] | null; away?: string[] }>(['audit'], queue === undefined ? { limit: 200 } : { queue, limit: 50 }, 0);
	return (
		<Card title={queue === undefined ? 'What changed' : 'Audit log'}>
			<Loaded of={audit}>{({ entries, away }) => <>{away && <p class="hint">Without those of {away.map((name) => name || 'the keys').join(', ')}, whose Redis does not answer.</p>}{(entries ?? []).length === 0 ? <p class="hint">No changes yet.</p> : (
				<ol class="changes">{entries!.map((e, i) => (
					<li key={`${e.at} ${i}`}>
						<At at={e.at} now={tick.value} title={e.at} />
						<div><p>{queue === undefined && e.queue && <><a href={href('queues', e.queue)}><Name>{e.queue}</Name></a>: </>}<Sentence e={e} /></p><Differences e={e} /></div>
					</li>
				))}</ol>
			)}</>}</Loaded>
		</Card>
	);
}
