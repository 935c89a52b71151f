import { computed, signal } from '@preact/signals';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError, get, keyWanted, setKey } from './api';
import type { Session } from './types';
import { Problem } from './ui/dialog';

export const session = signal<Session | null>(null);

/** Whether changes can be made here: buttons that could only fail are not shown. */
export const mayChange = computed(() => session.value !== null && !session.value.read_only && session.value.scopes.includes('admin'));

/** The same for what concerns all tenants of a queue. */
export const mayChangeAll = computed(() => mayChange.value && session.value?.tenants === undefined);

export async function readSession(): Promise<void> {
	session.value = await get<Session>(['session']);
	keyWanted.value = false;
}

/** Asks for the session until there is one. */
export function useSession(): void {
	const wanted = keyWanted.value;
	useEffect(() => {
		if (wanted || session.value) return;
		let timer = 0;
		const ask = () => readSession().catch((e) => {
			if (!(e instanceof ApiError && e.status === 401)) timer = window.setTimeout(ask, 2000);
		});
		void ask();
		return () => clearTimeout(timer);
	}, [wanted]);
}

export function signOut(): void {
	session.value = null;
	setKey('');
	keyWanted.value = true;
}

/** Asks for the key, which stays in this tab and is gone with it. */
export function KeyDialog() {
	const dialog = useRef<HTMLDialogElement>(null), id = useId();
	const [text, setText] = useState(''), [error, setError] = useState<unknown>(null);
	const wanted = keyWanted.value;
	useEffect(() => {
		if (wanted) dialog.current!.showModal();
		else dialog.current!.close();
	}, [wanted]);
	const submit = async (e: Event) => {
		e.preventDefault();
		setError(null);
		setKey(text.trim());
		try {
			await readSession();
			setText('');
		} catch (e) {
			setError(e instanceof ApiError && e.status === 401 ? new Error('This key is not known here.') : e);
		}
	};
	return (
		<dialog ref={dialog} aria-labelledby={id + 't'} onCancel={(e) => e.preventDefault()}>
			<form class="confirm" onSubmit={submit}>
				<h2 id={id + 't'}>A key, please</h2>
				<p>This server shows its queues to those who have a key. Who runs it can give you one.</p>
				<label class="field" for={id + 'k'}>Key
					<input id={id + 'k'} type="password" value={text} onInput={(e) => setText(e.currentTarget.value)} required autocomplete="off" />
				</label>
				{error != null && <Problem error={error} />}
				<div class="buttons"><button type="submit" class="primary">Open</button></div>
			</form>
		</dialog>
	);
}
