import { num, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { href } from '../router';
import type { AuditEntry } from '../types';
import { At, Card } from '../ui/card';
import { JobLink, Name, TenantLink } from '../ui/name';
import { Loaded } from '../ui/states';

const actions: Record<string, string> = { cancel: 'cancelled', run: 'ran', retry: 'retried', delete: 'deleted' };

/** What an operator did: the sentence after the name. */
function Did({ e }: { e: AuditEntry }) {
	const whom = e.tenant ? <TenantLink queue={e.queue} tenant={e.tenant} /> : null;
	switch (e.action) {
		case 'pause':
		case 'resume':
			return <>{e.action === 'pause' ? 'paused' : 'resumed'} {e.endpoint && <>endpoint <bdi>{e.endpoint}</bdi>{whom && ' of '}</>}{whom ?? (e.kind ? <>jobs of kind <bdi>{e.kind}</bdi></> : !e.endpoint && 'all of the queue')}{e.action === 'pause' && e.until && <> until <At at={e.until} now={time(e.at)} /></>}</>;
		case 'override':
			return <>changed <q><bdi>{e.limit}</bdi></q> of {whom}{e.until && <> until <At at={e.until} now={time(e.at)} /></>}</>;
		case 'clear':
			return <>cleared the override of <q><bdi>{e.limit}</bdi></q> of {whom}</>;
		case 'publish':
			return <>published limits</>;
	}
	const what = e.id ? <>job <JobLink queue={e.queue} id={e.id} /></> : <>{num(e.count)} {e.state ?? ''} {e.count === 1 ? 'job' : 'jobs'}</>;
	return <>{actions[e.action] ?? e.action} {what}{whom && <> of {whom}</>}{e.kind && <> of kind <bdi>{e.kind}</bdi></>}</>;
}

function Differences({ e }: { e: AuditEntry }) {
	const names = [...new Set([...Object.keys(e.before ?? {}), ...Object.keys(e.after ?? {})])].sort();
	if (names.length === 0) return null;
	return (
		<ul class="differences">
			{names.slice(0, 20).map((n) => <li key={n}><bdi>{n}</bdi>: {e.before?.[n] && <><s>{e.before[n]}</s> → </>}<b>{e.after?.[n] ?? 'none'}</b></li>)}
			{names.length > 20 && <li>and {num(names.length - 20)} more</li>}
		</ul>
	);
}

/** The newest changes by operators and publishers: of one queue, or of all. */
export function Changes({ queue }: { queue?: string }) {
	const audit = useResource<{ entries: AuditEntry[] | null }>(['audit'], queue === undefined ? { limit: 200 } : { queue, limit: 50 }, 0);
	return (
		<Card title={queue === undefined ? 'What changed' : 'Audit log'}>
			<Loaded of={audit}>{({ entries }) => ((entries ?? []).length === 0 ? <p class="hint">No changes yet.</p> : (
				<ol class="changes">{entries!.map((e, i) => (
					<li key={`${e.at} ${i}`}>
						<At at={e.at} now={tick.value} title={e.at} />
						<div><p>{queue === undefined && e.queue && <><a href={href('queues', e.queue)}><Name>{e.queue}</Name></a>: </>}<b><bdi>{e.actor}</bdi></b> <Did e={e} />{e.reason && <span class="why">: <bdi>{e.reason}</bdi></span>}</p><Differences e={e} /></div>
					</li>
				))}</ol>
			))}</Loaded>
		</Card>
	);
}
