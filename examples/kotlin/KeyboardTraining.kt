// A keyboard app's uses of phonograd: rounds, and suggestions. docs/android.md has what else it needs.
package com.example.keyboard

import android.content.Context
import java.io.Closeable
import java.io.File
import java.io.IOException
import org.phonograd.Ending
import org.phonograd.Keyboard
import org.phonograd.ModelFiles
import org.phonograd.RoundClient
import org.phonograd.RoundJob
import org.phonograd.ServerConnection
import org.phonograd.TextCollector
import org.phonograd.TrainingCommand
import org.phonograd.TrainingJob
import org.phonograd.Workspace

/** Takes the phone into the rounds of a server, once the app's backend has given it a name and a token. Not for the main thread. */
fun enroll(context: Context, server: String, phone: String, token: String) {
    val workspace = Workspace(context)
    context.assets.open("model.zip").use { RoundClient.enroll(workspace, it, server, phone, token) }
    RoundJob.schedule(context, Rounds::class.java, 0)
}

private fun client(context: Context): RoundClient? {
    val workspace = Workspace(context)
    return ServerConnection.read(workspace)?.let { RoundClient(workspace, it, "rot-q2") }
}

/** What a round needs of the network: its model, then its update. It schedules the training. The manifest names both jobs. */
class Rounds : RoundJob() {
    override fun client(): RoundClient = checkNotNull(client(this)) { "enroll the phone before its first job" }

    override fun training(): Class<out TrainingJob> = KeyboardTraining::class.java
}

/** Trains at night on what was typed last, then has the update sent. */
class KeyboardTraining : TrainingJob() {
    override fun command(): TrainingCommand? =
        try {
            client(this)?.trainingCommand(TextCollector(Workspace(this)))
        } catch (error: IOException) {
            null // storage or text refused: Rounds schedules the training again
        }

    override fun onEnded(ending: Ending) {
        val next = client(this)?.ended(ending) ?: return
        if (next.action == RoundClient.Action.NETWORK) RoundJob.schedule(this, Rounds::class.java, next.afterSeconds)
    }
}

/** Suggestions of the model, in int8, and of the user's own words. Nothing here is for the main thread. */
class Suggesting(context: Context, model: File?) : Closeable {
    private val typed = TextCollector(Workspace(context))
    private val keyboard: Keyboard

    init {
        val workspace = Workspace(context)
        val int8 = File(context.noBackupFilesDir, "int8.safetensors")
        val weights = model ?: File(workspace.artifacts, "weights.safetensors")
        if (int8.lastModified() < weights.lastModified()) ModelFiles(workspace.binary).quantize(workspace.artifacts, model, int8)
        keyboard = Keyboard.open(workspace.artifacts, int8, File(context.noBackupFilesDir, "own.words"))
    }

    fun afterWord(word: String): List<String> {
        keyboard.learn(word)
        return keyboard.suggest("", 3).map { it.word }
    }

    /** Gives a message that was sent to the next round. Leave out fields of passwords and those not to be learned from. */
    fun afterMessage(message: String) = typed.add(message.replace('\n', ' ') + "\n")

    override fun close() {
        keyboard.save()
        keyboard.close()
    }
}
